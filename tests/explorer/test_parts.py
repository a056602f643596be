"""Known answers for the page and the widgets of the lessons, in JavaScript."""


def test_the_parts_of_the_page(run_node):
    run_node("parts.test.mjs")


def test_the_widgets_of_the_lessons(run_node):
    run_node("widgets.test.mjs")
