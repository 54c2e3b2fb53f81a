"""Charsets of MySQL and MariaDB: which one a collation belongs to, and their tables of code points.

Collation ids are those of `information_schema.collations` of MySQL 9.7 and MariaDB 11.4 together; a test reads both
servers and says which is missing.

Source: https://dev.mysql.com/doc/refman/9.7/en/charset-charsets.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from changefeed.binlog.text import GB18030_BMP, GB18030_FOUR, LEAD2, LEAD3, LEAD4, UNDEFINED

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
    found: dict[int, str] = {}
    for line in _IDS.replace("|", "\n").split("\n"):
        name, _, ranges = line.partition(" ")
        for part in ranges.split():
            first, _, last = part.partition("-")
            for collation in range(int(first), int(last or first) + 1):
                found[collation] = name
    return found


def charset_of(collation: int) -> str | None:
    """The charset of a collation's id; None for an id that neither server lists."""
    return _charsets_by_id().get(collation)


def charset_of_name(collation: str) -> str:
    """The charset of a collation's name: `latin1_swedish_ci` -> `latin1`; the old name `utf8` is `utf8mb3`."""
    name = collation.partition("_")[0]
    return "utf8mb3" if name == "utf8" else name


PASSED = frozenset({"utf8mb4", "utf8mb3", "ascii"})
"""Charsets whose text is written as it is, once it has been checked."""

_CODECS = {
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

_ASCII_UNLIKE = frozenset({"swe7"})
_MULTI = frozenset({"big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"})


def is_ascii_like(charset: str) -> bool:
    """Whether bytes below 128 at a character's begin are ASCII."""
    return charset not in _ASCII_UNLIKE


def decoder_of(charset: str) -> Callable[[bytes], str]:
    """bytes -> text, for the few texts that Python handles itself: labels of ENUM and SET, statements."""
    if charset in PASSED or charset == "binary":
        return lambda data: data.decode("utf-8", "replace")
    if charset in ("ucs2", "utf16"):
        return lambda data: data.decode("utf-16-be", "replace")
    if charset == "utf16le":
        return lambda data: data.decode("utf-16-le", "replace")
    if charset == "utf32":
        return lambda data: data.decode("utf-32-be", "replace")
    codes = code_table(charset)

    def decode(data: bytes) -> str:
        text, at = [], 0
        while at < len(data):
            code, used = codes[data[at]], 1
            if code in (LEAD2, LEAD4) and at + 1 < len(data):
                code, used = codes[data[at] << 8 | data[at + 1]], 2
            elif code == LEAD3 and at + 2 < len(data):
                code, used = codes[65536 + (data[at + 1] << 8 | data[at + 2])], 3
            text.append(chr(code) if code >= 0 else "\ufffd")
            at += used
        return "".join(text)

    return decode


def code_table(charset: str) -> list[int]:
    """The charset's table as `text.put_table` reads it: code points by byte, and by two bytes from 0x8000 on."""
    return list(_code_table(charset))


@cache
def _code_table(charset: str) -> tuple[int, ...]:
    codec = _CODECS[charset]
    singles = [_code(bytes([byte]), codec) if codec else byte for byte in range(256)]
    if charset in ("latin1", "tis620"):
        singles = [byte if code == UNDEFINED else code for byte, code in enumerate(singles)]
    if charset not in _MULTI:
        return tuple(singles)
    size = 65536
    if charset in ("ujis", "eucjpms"):
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
            code = _code(bytes([first, second]), codec)
            if code != UNDEFINED:
                table[first << 8 | second] = code
                found = True
        if found or charset == "gb18030":
            table[first] = LEAD4 if charset == "gb18030" else LEAD2
    if charset in ("ujis", "eucjpms"):
        table[0x8F] = LEAD3
        for second in range(0xA1, 255):
            for third in range(0xA1, 255):
                table[65536 + (second << 8 | third)] = _code(bytes([0x8F, second, third]), codec)
    if charset == "gb18030":
        for linear in range(GB18030_BMP):
            rest, fourth = divmod(linear, 10)
            rest, third = divmod(rest, 126)
            first, second = divmod(rest, 10)
            sequence = bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])
            table[GB18030_FOUR + linear] = _code(sequence, codec)
    return tuple(table)


def _code(sequence: bytes, codec: str) -> int:
    try:
        text = sequence.decode(codec)
    except UnicodeDecodeError:
        return UNDEFINED
    return ord(text) if len(text) == 1 else UNDEFINED
