"""Charsets of MySQL and MariaDB: which of them a collation belongs to, and their tables of code points.

Collation ids are those of `information_schema.collations` of MySQL 9.7 and MariaDB 11.4 together; a test reads both
servers and says which is missing.

Source: https://dev.mysql.com/doc/refman/9.7/en/charset-charsets.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from changefeed.binlog.kernel.text import GB18030_BMP, GB18030_FOUR, LEAD2, LEAD3, LEAD4, UNDEFINED

_IDS = """
armscii8 32 64 1056 1088|ascii 11 65 1035 1089|big5 1 84 1025 1108|binary 63|cp1250 26 34 44 66 99 1050 1090
cp1251 14 23 50-52 1074-1075|cp1256 57 67 1081 1091|cp1257 29 58-59 1082-1083|cp850 4 80 1028 1104
cp852 40 81 1064 1105|cp866 36 68 1060 1092|cp932 95-96 1119-1120|dec8 3 69 1027 1093|eucjpms 97-98 1121-1122
euckr 19 85 1043 1109|gb18030 248-250|gb2312 24 86 1048 1110|gbk 28 87 1052 1111|geostd8 92-93 1116-1117
greek 25 70 1049 1094|hebrew 16 71 1040 1095|hp8 6 72 1030 1096|keybcs2 37 73 1061 1097|koi8r 7 74 1031 1098
koi8u 22 75 1046 1099|latin1 5 8 15 31 47-49 94 1032 1071|latin2 2 9 21 27 77 1033 1101|latin5 30 78 1054 1102
latin7 20 41-42 79 1065 1103|macce 38 43 1062 1067|macroman 39 53 1063 1077|sjis 13 88 1037 1112
swe7 10 82 1034 1106|tis620 18 89 1042 1113|ucs2 35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2727 2744-2759
ujis 12 91 1036 1115|utf16 54-55 101-124 672-674 1078-1079 1125 1147 2816-2983 3000-3015|utf16le 56 62 1080 1086
utf32 60-61 160-183 736-738 1084-1085 1184 1206 3072-3239 3256-3271
utf8mb3 33 76 83 192-215 223 576-578 1057 1107 1216 1238 2048-2215 2232-2247
utf8mb4 45-46 224-247 255-271 273-275 277-294 296-298 300 303-323 608-610 1069-1070 1248 1270 2304-2471 2488-2503
"""


@cache
def _charsets_by_id() -> dict[int, str]:
    charsets: dict[int, str] = {}
    for line in _IDS.replace("|", "\n").split("\n"):
        name, _, ranges = line.partition(" ")
        for part in ranges.split():
            first, _, last = part.partition("-")
            for collation in range(int(first), int(last or first) + 1):
                charsets[collation] = name
    return charsets


def charset_of(collation: int) -> str | None:
    """The charset of a collation's id; None for an id that neither server lists."""
    return _charsets_by_id().get(collation)


def charset_of_name(collation: str) -> str:
    """The charset of a collation's name: `latin1_swedish_ci` -> `latin1`; the old name `utf8` is `utf8mb3`."""
    name = collation.partition("_")[0]
    return "utf8mb3" if name == "utf8" else name


UNKNOWN = "unknown"
"""Of a column that the binlog alone describes: UTF-8 where its values are that, else bytes."""

PASSED = frozenset({"utf8mb4", "utf8mb3", "ascii"})
"""Charsets whose text is written as it is, once it has been checked."""

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
    "dec8": ("latin-1"),
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
"""Bytes 128 to 255 of single-byte charsets that Python has no codec for, as the server's own CONVERT gives them."""

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

_OTHERWISE: dict[str, dict[int, int]] = {
    "cp1256": {
        0x8A: UNDEFINED,
        0x8F: UNDEFINED,
        0x98: UNDEFINED,
        0x9A: UNDEFINED,
        0x9F: UNDEFINED,
        0xAA: UNDEFINED,
        0xC0: UNDEFINED,
        0xFF: UNDEFINED,
    },
    "cp866": {0xFC: 0x207F, 0xFD: 0x00B2},
    "greek": {0xA1: 0x02BD, 0xA2: 0x02BC, 0xA4: UNDEFINED, 0xA5: UNDEFINED, 0xAA: UNDEFINED},
    "hebrew": {0xAF: 0x203E},
    "koi8u": {0x95: 0x2022},
    "big5": {
        0xA15A: UNDEFINED,
        0xA1C3: UNDEFINED,
        0xA1C5: UNDEFINED,
        0xA1FE: UNDEFINED,
        0xA240: UNDEFINED,
        0xA2CC: UNDEFINED,
        0xA2CE: UNDEFINED,
        0xF9D6: 0x7881,
        0xF9D7: 0x92B9,
        0xF9D8: 0x88CF,
        0xF9D9: 0x58BB,
        0xF9DA: 0x6052,
        0xF9DB: 0x7CA7,
        0xF9DC: 0x5AFA,
    },
    "gb18030": {0xA8BC: 0x1E3F},
    "sjis": {0x815F: 0x005C},
    "ujis": {0xA1C0: 0x005C},
}
"""Characters that the servers map otherwise than Python's codecs do."""


@cache
def misread_by_python(charset: str) -> frozenset[str]:
    """The characters that Python's codec makes of what the servers read as other characters, or as none."""
    texts = (
        code.to_bytes(2 if code > 0xFF else 1, "big").decode(_CODECS[charset], "ignore")
        for code in _OTHERWISE.get(charset, ())
    )
    return frozenset(filter(None, texts))


_UNICODE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
_ASCII_UNLIKE = frozenset({"swe7"})
_EUC_JP = frozenset({"ujis", "eucjpms"})
_MULTI = frozenset({"big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"})


def is_known(charset: str) -> bool:
    """Whether text of ``charset`` can be read; "binary" is no text, and can."""
    return charset in PASSED or charset in _CODECS or charset in _UNICODE or charset in ("binary", UNKNOWN)


def is_ascii_like(charset: str) -> bool:
    """Whether bytes below 128 at a character's begin are ASCII."""
    return charset not in _ASCII_UNLIKE


def decoder_of(charset: str) -> Callable[[bytes], str]:
    """bytes -> text, for the few texts that Python handles itself: labels of ENUM and SET, statements."""
    if charset in PASSED or charset in ("binary", UNKNOWN):
        return lambda data: data.decode("utf-8", "replace")
    if charset in ("ucs2", "utf16"):
        return lambda data: data.decode("utf-16-be", "replace")
    if charset == "utf16le":
        return lambda data: data.decode("utf-16-le", "replace")
    if charset == "utf32":
        return lambda data: data.decode("utf-32-be", "replace")
    if charset in _MULTI:
        return lambda data: data.decode(_CODECS[charset], "replace")
    codes = code_table(charset)
    return lambda data: "".join(chr(codes[byte]) if codes[byte] >= 0 else "\ufffd" for byte in data)


def encoded(text: str, charset: str) -> bytes | None:
    """The bytes of ``text`` in a column of ``charset``; None for text that it cannot hold."""
    if charset in PASSED or charset in ("binary", UNKNOWN):
        return text.encode() if charset != "ascii" or text.isascii() else None
    codec = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}.get(charset)
    try:
        if codec or charset in _MULTI:
            data = text.encode(codec or _CODECS[charset])
        else:
            codes = code_table(charset)
            data = bytes(codes.index(ord(character)) for character in text)
    except (UnicodeEncodeError, ValueError):
        return None
    return data if decoder_of(charset)(data) == text else None


def code_table(charset: str) -> list[int]:
    """The charset's table as `text.put_table` reads it: code points by byte, and by two bytes from 0x8000 on."""
    return list(_code_table(charset))


@cache
def _code_table(charset: str) -> tuple[int, ...]:
    codec = _CODECS[charset]
    singles = [_code(bytes([byte]), codec) if codec else byte for byte in range(256)]
    if charset in _UPPER_HALVES:
        singles[128:] = [UNDEFINED if code == "\ufffd" else ord(code) for code in _UPPER_HALVES[charset]]
    elif charset == "swe7":
        singles = [_SWE7.get(byte, byte) if byte < 127 else UNDEFINED for byte in range(256)]
    elif charset == "latin1":
        singles = [byte if code == UNDEFINED else code for byte, code in enumerate(singles)]
    elif charset == "tis620":
        singles[0x80:0xA0] = range(0x80, 0xA0)
        singles[0xA0] = UNDEFINED
    otherwise = _OTHERWISE.get(charset, {})
    if charset not in _MULTI:
        return tuple(otherwise.get(byte, code) for byte, code in enumerate(singles))
    size = 65536
    if charset in _EUC_JP:
        size = 2 * 65536
    elif charset == "gb18030":
        size = GB18030_FOUR + GB18030_BMP
    table = [UNDEFINED] * size
    table[:256] = singles
    for first in range(0x80, 256):
        if singles[first] != UNDEFINED:
            continue
        found = False
        for second in range(0x30, 256):
            pair = first << 8 | second
            code = _euc_jp(charset, first, second) if charset in _EUC_JP else _code(bytes([first, second]), codec)
            code = otherwise.get(pair, code)
            if code != UNDEFINED:
                table[pair] = code
                found = True
        if found or charset == "gb18030":
            table[first] = LEAD4 if charset == "gb18030" else LEAD2
    if charset in _EUC_JP:
        table[0x8F] = LEAD3
        for second in range(0xA1, 255):
            for third in range(0xA1, 255):
                code = _code(bytes([0x8F, second, third]), codec)
                if second >= 0xF5:
                    code = 0xE3AC + (second - 0xF5) * 94 + third - 0xA1
                table[65536 + (second << 8 | third)] = code
    if charset == "gb18030":
        for linear in range(GB18030_BMP):
            rest, fourth = divmod(linear, 10)
            rest, third = divmod(rest, 126)
            first, second = divmod(rest, 10)
            sequence = bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])
            table[GB18030_FOUR + linear] = _code(sequence, codec)
    return tuple(table)


def _euc_jp(charset: str, first: int, second: int) -> int:
    """Two bytes of ujis or eucjpms: the last rows are for private use; eucjpms is Microsoft's cp932 in EUC's bytes."""
    if first < 0xA1 or second < 0xA1 or second == 0xFF:
        return _code(bytes([first, second]), "euc_jp")
    row, cell = first - 0xA1, second - 0xA1
    if row >= 84 and first != 0xFF:
        return 0xE000 + (row - 84) * 94 + cell
    if charset == "ujis":
        return _code(bytes([first, second]), "euc_jp")
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + 0x9F if row % 2 else cell + 0x40 + (cell >= 63)
    return _code(bytes([lead, trail]), "cp932")


def _code(sequence: bytes, codec: str) -> int:
    try:
        text = sequence.decode(codec)
    except UnicodeDecodeError:
        return UNDEFINED
    return ord(text) if len(text) == 1 else UNDEFINED
