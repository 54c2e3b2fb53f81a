"""The characters of each charset of MySQL and MariaDB, by their bytes.

A byte sequence is *well formed* if it is one character in its charset, even if Unicode does not have that character.
No sequence of a charset is a prefix of another. A test compares all sequences with CONVERT of both servers.

Source: https://dev.mysql.com/doc/refman/9.7/en/charset-charsets.html"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

UNKNOWN = "unknown"
"""The charset of a column that only the binlog describes. Values that are valid UTF-8 are text, others are bytes."""


def charset_of_name(collation: str) -> str:
    """The charset of a collation's name: `latin1_swedish_ci` -> `latin1`; the old name `utf8` is `utf8mb3`."""
    name = collation.partition("_")[0]
    return "utf8mb3" if name == "utf8" else name


PASSED_THROUGH = frozenset({"utf8mb4", "utf8mb3", "ascii"})
"""Charsets whose text is written unchanged after a check."""

_CODECS: dict[str, str] = {
    "armscii8": "",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "dec8": "latin-1",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "geostd8": "",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "hp8": "hp-roman8",
    "keybcs2": "",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "sjis": "shift_jis",
    "swe7": "",
    "tis620": "tis-620",
    "ujis": "euc_jp",
}

_UPPER_HALVES: dict[str, str] = {
    "armscii8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
        "\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
        "\xa0\u2741\xa7\u0589)(\xbb\xab\u2014.\u055d,-\u055f\u2026\u055c"
        "\u055b\u055e\u0531\u0561\u0532\u0562\u0533\u0563\u0534\u0564\u0535\u0565\u0536\u0566\u0537\u0567"
        "\u0538\u0568\u0539\u0569\u053a\u056a\u053b\u056b\u053c\u056c\u053d\u056d\u053e\u056e\u053f\u056f"
        "\u0540\u0570\u0541\u0571\u0542\u0572\u0543\u0573\u0544\u0574\u0545\u0575\u0546\u0576\u0547\u0577"
        "\u0548\u0578\u0549\u0579\u054a\u057a\u054b\u057b\u054c\u057c\u054d\u057d\u054e\u057e\u054f\u057f"
        "\u0550\u0580\u0551\u0581\u0552\u0582\u0553\u0583\u0554\u0584\u0555\u0585\u0556\u0586\u2019'"
    ),
    "geostd8": (
        "\u20ac\ufffd\u201a\ufffd\u201e\u2026\u2020\u2021\ufffd\u2030\ufffd\u2039\ufffd\ufffd\ufffd\ufffd"
        "\ufffd\u2018\u2019\u201c\u201d\u2022\u2013\u2014\ufffd\ufffd\ufffd\u203a\ufffd\ufffd\ufffd\ufffd"
        "\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"
        "\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xbb\xbc\xbd\xbe\xbf"
        "\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5\u10d6\u10f1\u10d7\u10d8\u10d9\u10da\u10db\u10dc\u10f2\u10dd"
        "\u10de\u10df\u10e0\u10e1\u10e2\u10f3\u10e3\u10e4\u10e5\u10e6\u10e7\u10e8\u10e9\u10ea\u10eb\u10ec"
        "\u10ed\u10ee\u10f4\u10ef\u10f0\u10f5\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd"
        "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\u2116\ufffd\ufffd"
    ),
    "keybcs2": (
        "\u010c\xfc\xe9\u010f\xe4\u010e\u0164\u010d\u011b\u011a\u0139\xcd\u013e\u013a\xc4\xc1"
        "\xc9\u017e\u017d\xf4\xf6\xd3\u016f\xda\xfd\xd6\xdc\u0160\u013d\xdd\u0158\u0165"
        "\xe1\xed\xf3\xfa\u0148\u0147\u016e\xd4\u0161\u0159\u0155\u0154\xbc\xa1\xab\xbb"
        "\u2591\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563\u2551\u2557\u255d\u255c\u255b\u2510"
        "\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554\u2569\u2566\u2560\u2550\u256c\u2567"
        "\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518\u250c\u2588\u2584\u258c\u2590\u2580"
        "\u03b1\xdf\u0393\u03c0\u03a3\u03c3\xb5\u03c4\u03a6\u0398\u03a9\u03b4\u221e\u03c6\u03b5\u2229"
        "\u2261\xb1\u2265\u2264\u2320\u2321\xf7\u2248\xb0\u2219\xb7\u221a\u207f\xb2\u25a0\xa0"
    ),
    "dec8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f"
        "\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f"
        "\xa0\xa1\xa2\xa3\ufffd\xa5\ufffd\xa7\xa4\xa9\xaa\xab\ufffd\ufffd\ufffd\ufffd"
        "\xb0\xb1\xb2\xb3\ufffd\xb5\xb6\xb7\ufffd\xb9\xba\xbb\xbc\xbd\ufffd\xbf"
        "\xc0\xc1\xc2\xc3\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf"
        "\ufffd\xd1\xd2\xd3\xd4\xd5\xd6\u0152\xd8\xd9\xda\xdb\xdc\u0178\ufffd\xdf"
        "\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef"
        "\ufffd\xf1\xf2\xf3\xf4\xf5\xf6\u0153\xf8\xf9\xfa\xfb\xfc\xff\ufffd\ufffd"
    ),
}
"""The characters of bytes 128 to 255 in single-byte charsets without a Python codec, as CONVERT of the server returns
them."""

_SWE7 = {
    0x40: 0xC9,
    0x5B: 0xC4,
    0x5C: 0xD6,
    0x5D: 0xC5,
    0x5E: 0xDC,
    0x60: 0xE9,
    0x7B: 0xE4,
    0x7C: 0xF6,
    0x7D: 0xE5,
    0x7E: 0xFC,
}

_OTHERWISE: dict[str, dict[int, int | None]] = {
    "cp1256": {
        0x8A: None,
        0x8F: None,
        0x98: None,
        0x9A: None,
        0x9F: None,
        0xAA: None,
        0xC0: None,
        0xFF: None,
    },
    "cp866": {0xFC: 0x207F, 0xFD: 0x00B2},
    "greek": {0xA1: 0x02BD, 0xA2: 0x02BC, 0xA4: None, 0xA5: None, 0xAA: None},
    "hebrew": {0xAF: 0x203E},
    "koi8u": {0x95: 0x2022},
    "big5": {
        0xA15A: None,
        0xA1C3: None,
        0xA1C5: None,
        0xA1FE: None,
        0xA240: None,
        0xA2CC: None,
        0xA2CE: None,
        0xF9D6: 0x7881,
        0xF9D7: 0x92B9,
        0xF9D8: 0x88CF,
        0xF9D9: 0x58BB,
        0xF9DA: 0x6052,
        0xF9DB: 0x7CA7,
        0xF9DC: 0x5AFA,
    },
    "cp932": dict.fromkeys((0x80, 0xA0, 0xFD, 0xFE, 0xFF)),
    "eucjpms": {0x8FA2B7: 0xFF5E, 0x8FA2C3: 0xFFE4},
    "gb18030": {0xA8BC: 0x1E3F, 0x8135F437: 0xE7C7},
    "sjis": {0x815F: 0x005C},
    "ujis": {0xA1C0: 0x005C},
}
"""Characters that the servers map differently from Python's codecs."""


@cache
def misread_by_python(charset: str) -> frozenset[str]:
    """The characters that Python's codec decodes differently from the servers."""
    sequences = (_sequence(code) for code in _OTHERWISE.get(charset, ()))
    return frozenset(filter(None, (sequence.decode(_CODECS[charset], "ignore") for sequence in sequences)))


_UNICODE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}

_ASCII_UNLIKE = frozenset({"swe7"})

_TRAILS_FROM_40 = (*range(0x40, 0x7F), *range(0x80, 0xFF))
_SHIFT_JIS = ((*range(0x81, 0xA0), *range(0xE0, 0xFD)), (*range(0x40, 0x7F), *range(0x80, 0xFD)))
_EUC = (range(0xA1, 0xFF), range(0xA1, 0xFF))
_PAIRS: Mapping[str, tuple[Iterable[int], Iterable[int]]] = {
    "big5": (range(0xA1, 0xFA), (*range(0x40, 0x7F), *range(0xA1, 0xFF))),
    "cp932": _SHIFT_JIS,
    "eucjpms": _EUC,
    "euckr": (range(0x81, 0xFF), (*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0x81, 0xFF))),
    "gb18030": (range(0x81, 0xFF), _TRAILS_FROM_40),
    "gb2312": (range(0xA1, 0xF8), range(0xA1, 0xFF)),
    "gbk": (range(0x81, 0xFF), _TRAILS_FROM_40),
    "sjis": _SHIFT_JIS,
    "ujis": _EUC,
}
"""The first and the second bytes of the well-formed pairs of multi-byte charsets."""
_OF_FOUR = re.compile(rb"[\x81-\xfe][0-9][\x81-\xfe][0-9]")
"""A well-formed sequence of four bytes in GB18030."""
_OF_THREE = frozenset({"eucjpms", "ujis"})

_GB18030_BMP = 39420
"""The number of four-byte characters of GB18030 in the basic plane. They come before the other four-byte characters."""


def is_known(charset: str) -> bool:
    """Whether text of ``charset`` can be read; also true for "binary"."""
    return charset in PASSED_THROUGH or charset in _CODECS or charset in _UNICODE or charset in ("binary", UNKNOWN)


def is_ascii_like(charset: str) -> bool:
    """Whether a byte below 128 at the beginning of a character is ASCII."""
    return charset not in _ASCII_UNLIKE


def is_multi_byte(charset: str) -> bool:
    """Whether `characters` has sequences of several bytes."""
    return charset in _PAIRS


def decode_text(data: bytes, charset: str) -> str:
    """The text of ``data``; U+FFFD for invalid bytes.

    Only for the few texts that Python decodes: labels of ENUM and SET, and statements.
    """
    if charset in PASSED_THROUGH or charset in ("binary", UNKNOWN):
        return data.decode("utf-8", "replace")
    if codec := _UNICODE.get(charset):
        return data.decode(codec, "replace")
    if data.isascii() and is_ascii_like(charset):
        return data.decode()
    return "".join(_read(data, charset))


def _read(data: bytes, charset: str) -> Iterator[str]:
    known = characters(charset)
    at = 0
    while at < len(data):
        if charset == "gb18030" and _OF_FOUR.match(data, at):
            size = 4
            code = known.get(data[at : at + size]) or _character(data[at : at + size], "gb18030")
        else:
            size = next((size for size in (1, 2, 3) if data[at : at + size] in known), 1)
            code = known.get(data[at : at + size])
        yield "\ufffd" if code is None else chr(code)
        at += size


def encode_text(text: str, charset: str) -> bytes | None:
    """The bytes of ``text`` in a column of ``charset``; None if the charset does not have all its characters."""
    if charset in PASSED_THROUGH or charset in ("binary", UNKNOWN):
        return text.encode() if charset != "ascii" or text.isascii() else None
    codec = _UNICODE.get(charset) or (_CODECS[charset] if charset in _PAIRS else None)
    try:
        if codec is not None:
            data = text.encode(codec)
            if decode_text(data, charset) == text:
                return data
        if charset in _UNICODE:
            return None
        sequences = _sequences(charset)
        return b"".join(sequences[ord(character)] for character in text)
    except (UnicodeEncodeError, KeyError):
        return None


@cache
def _sequences(charset: str) -> Mapping[int, bytes]:
    known: dict[int, bytes] = {}
    for sequence, code in characters(charset).items():
        if code is not None:
            known.setdefault(code, sequence)
    return known


@cache
def characters(charset: str) -> Mapping[bytes, int | None]:
    """The code points of the characters of a charset by their bytes, shorter sequences first.

    The code point is None for a well-formed sequence that is no character of Unicode. Sequences that are not well
    formed are missing. For GB18030, characters beyond the basic plane are missing, too.
    """
    otherwise = _OTHERWISE.get(charset, {})
    singles = _singles(charset)
    known: dict[bytes, int | None] = {bytes([byte]): code for byte, code in enumerate(singles) if code is not None}
    if charset in _PAIRS:
        firsts, seconds = _PAIRS[charset]
        known |= {bytes([first, second]): _pair(charset, first, second) for first in firsts for second in seconds}
    if charset in _OF_THREE:
        kana = (bytes([0x8E, second]) for second in range(0xA1, 0xE0))
        known |= {sequence: _character(sequence, _CODECS[charset]) for sequence in kana}
        known |= _three_bytes(charset)
    elif charset == "gb18030":
        known |= {sequence: _character(sequence, "gb18030") for sequence in map(_four_bytes, range(_GB18030_BMP))}
    for code, character in otherwise.items():
        if character is not None or code > 0xFF:
            known[_sequence(code)] = character
        else:
            known.pop(_sequence(code), None)
    return known


def _singles(charset: str) -> list[int | None]:
    """The characters of one byte, by that byte."""
    codec = _CODECS[charset]
    singles = [_character(bytes([byte]), codec) if codec else byte for byte in range(256)]
    if charset in _UPPER_HALVES:
        singles[128:] = [None if code == "\ufffd" else ord(code) for code in _UPPER_HALVES[charset]]
    elif charset == "swe7":
        singles = [_SWE7.get(byte, byte) if byte < 127 else None for byte in range(256)]
    elif charset == "latin1":
        singles = [byte if code is None else code for byte, code in enumerate(singles)]
    elif charset == "tis620":
        singles[0x80:0xA0] = range(0x80, 0xA0)
        singles[0xA0] = None
    return singles


def _pair(charset: str, first: int, second: int) -> int | None:
    """The code point of a pair of bytes.

    In ujis and eucjpms the rows from 84 on are for private use. eucjpms has the characters of Microsoft's cp932 in the
    byte layout of EUC.
    """
    if charset not in _OF_THREE:
        return _character(bytes([first, second]), _CODECS[charset])
    row, cell = first - 0xA1, second - 0xA1
    if row >= 84:
        return 0xE000 + (row - 84) * 94 + cell
    if charset == "ujis":
        return _character(bytes([first, second]), "euc_jp")
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + 0x9F if row % 2 else cell + 0x40 + (cell >= 63)
    return _character(bytes([lead, trail]), "cp932")


def _three_bytes(charset: str) -> dict[bytes, int | None]:
    """The characters with lead byte 0x8F: JIS X 0212, and rows for private use.

    Before the rows for private use, eucjpms has the IBM extensions of cp932 that are in neither JIS X 0208 nor
    JIS X 0212.
    """
    known: dict[bytes, int | None] = {}
    for second in range(0xA1, 0xFF):
        for third in range(0xA1, 0xFF):
            sequence = bytes([0x8F, second, third])
            private = 0xE3AC + (second - 0xF5) * 94 + third - 0xA1 if second >= 0xF5 else None
            known[sequence] = private if private is not None else _character(sequence, "euc_jp")
    if charset == "eucjpms":
        extensions = (bytes([first, second]) for first in (0xFA, 0xFB, 0xFC) for second in _SHIFT_JIS[1])
        codes = (_character(sequence, "cp932") for sequence in extensions)
        missing = [code for code in codes if code is not None and _is_ibm_only(chr(code))]
        places = (bytes([0x8F, 0xF3 + at // 94, 0xA1 + at % 94]) for at in range(82, 82 + len(missing)))
        known |= dict(zip(places, missing, strict=True))
    return known


def _is_ibm_only(text: str) -> bool:
    """Whether a character of the IBM extensions is in neither JIS X 0208 nor JIS X 0212.

    № has a code in both; ￢ and ￤ have other codes.
    """
    return text == "№" or (text not in "￢￤" and not text.encode("euc_jp", "ignore"))


def _four_bytes(number: int) -> bytes:
    """GB18030's sequence of four bytes with that number."""
    rest, fourth = divmod(number, 10)
    rest, third = divmod(rest, 126)
    first, second = divmod(rest, 10)
    return bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])


def _sequence(code: int) -> bytes:
    return code.to_bytes((code.bit_length() + 7) // 8, "big")


def _character(sequence: bytes, codec: str) -> int | None:
    try:
        text = sequence.decode(codec)
    except UnicodeDecodeError:
        return None
    return ord(text) if len(text) == 1 and text != "\ufffd" else None


_MAX_BYTES = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
}


def max_bytes(charset: str) -> int:
    """The maximum number of bytes of one character."""
    return _MAX_BYTES.get(charset, 1)
