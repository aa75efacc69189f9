from fp16sim_samples import four_runs, run

from fp16sim.report.tables import HEADER, factor_note, html_table, power_of_two, rows, text_table


def test_a_row_has_what_its_header_says() -> None:
    table = rows(four_runs())
    assert all(len(row) == len(HEADER) for row in table)
    assert table[1] == ("float16 unscaled", "10.6%", "60.0%", "30.0%", "10.0%", "1", "0")
    assert table[3][-2:] == ("2^34", "3")


def test_float32_loses_nothing_and_has_no_scale() -> None:
    assert rows(four_runs())[0] == ("float32", "97.0%", "60.0%", "-", "-", "-", "0")


def test_columns_line_up() -> None:
    lines = text_table(HEADER, rows(four_runs())).splitlines()
    assert len(lines) == 6
    ends = {line.index("%") for line in lines[2:]}
    assert len(ends) == 1
    assert lines[1].replace("-", "").strip() == ""
    assert all(line == line.rstrip() for line in lines)


def test_html_cells_are_escaped() -> None:
    assert "<script>" not in html_table(HEADER, rows([run("<script>")]))


def test_what_is_not_a_number_is_a_dash() -> None:
    assert rows([run("lost", accuracy=float("nan"))])[0][1] == "-"


def test_scales_that_are_no_powers_of_two_are_written_out() -> None:
    assert [power_of_two(scale) for scale in (3.0, 0.0, 2.0**-24, 65536.0, 131072.0, float("inf"))] == [
        "3", "0", "2^-24", "65536", "2^17", "inf",
    ]  # fmt: skip


def test_the_note_names_the_factor_and_what_it_stands_for() -> None:
    note = factor_note(2.0**-17)
    assert "2^-17" in note
    assert "SSD" in note
    assert "float32" in note
