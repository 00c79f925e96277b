from hisparse_runtime.engine.tokenizer import TextStream, encode, word


def test_text_is_its_bytes() -> None:
    assert encode("aé") == [97, 0xC3, 0xA9]


def test_character_comes_out_with_its_last_byte() -> None:
    stream = TextStream()
    assert [stream.push(token) for token in encode("é!")] == ["", "é", "!"]


def test_cut_character_is_replaced_before_a_word_and_at_the_end() -> None:
    stream = TextStream()
    assert stream.push(0xC3) == ""
    assert stream.push(256) == "\ufffd" + word(256)
    assert stream.push(0xC3) + stream.finish() == "\ufffd"


def test_every_word_is_different_and_printable() -> None:
    words = [word(token) for token in range(256, 10_000)]
    assert len(set(words)) == len(words)
    assert all(text.startswith(" ") and text[1:].isalpha() and len(text) >= 5 for text in words)
