"""Every statement of the seed documents has its home in a lesson."""

from __future__ import annotations

from dataclasses import replace

from grader.claims import Claim, as_markdown, faults, homes, load_claims
from grader.lesson import Lesson, load_course

CLAIMS = load_claims()
COURSE = load_course()


def test_every_statement_has_a_cell_in_its_lesson_and_every_tag_a_statement() -> None:
    assert faults(CLAIMS, COURSE) == []


def test_every_statement_of_the_first_two_documents_has_its_home_in_part_one() -> None:
    found = homes(CLAIMS, COURSE)
    part_one = [claim for claim in CLAIMS if claim.id[:3] in ("000", "001")]
    assert len(part_one) > 150
    for claim in part_one:
        assert any(home.lesson.number <= "08" for home in found[claim.id]), claim


def test_ids_are_unique_and_verdicts_known() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.verdict for claim in CLAIMS} == {"taught", "corrected", "outlook"}


def test_a_statement_without_home_and_an_unknown_tag_are_found(lesson_02: Lesson) -> None:
    orphan = Claim("009.1-a", "Nothing teaches this.", "02", "taught")
    assert faults([*CLAIMS, orphan], COURSE) == ["009.1-a has no cell in lesson 02: Nothing teaches this."]
    tagged = replace(lesson_02.cells[0], options={"claims": "000.0-z"})
    changed = replace(lesson_02, cells=(*lesson_02.cells, tagged))
    assert any("unknown claim '000.0-z'" in fault for fault in faults(CLAIMS, [changed]))


def test_the_table_has_a_row_for_each_statement() -> None:
    table = as_markdown(CLAIMS, COURSE)
    for claim in CLAIMS:
        assert f"| {claim.id} |" in table
