from swift_grpo_ext.once import Once


def test_a_message_is_said_once():
    said = []
    once = Once(said.append)
    for message in ("full", "late", "full"):
        once(message)
    assert said == ["full", "late"]


def test_of_several_messages_about_one_thing_the_first_is_said():
    said = []
    once = Once(said.append)
    for place in ("a", "b"):
        once(f"{place} is full", about="full")
    assert said == ["a is full"]
