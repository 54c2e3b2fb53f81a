"""Charsets of MySQL and MariaDB as a binlog names them, and their tables for the kernel.

Collation ids are those of `information_schema.collations` in MySQL 9.7 and in MariaDB 11.4. A test compares them with
both servers, and reports missing ids.
"""

from __future__ import annotations

from functools import cache

from changefeed.binlog.kernel.text import LEAD2, LEAD3, LEAD4, UNDEFINED, UNMAPPED
from changefeed.model import charset_codes

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


_DISTINGUISHING = frozenset({46, 47, 63, 65, 83, 309, 1070, 1071, 1089, 1107})
"""The `_bin` collations of utf8mb4, latin1, ascii and utf8mb3, and their NO PAD forms in MariaDB; and `binary`."""


def distinguishes_characters(collation: int) -> bool:
    """Whether no two characters are equal in a collation of an ASCII-like charset; False if that is unknown."""
    return collation in _DISTINGUISHING


def code_table(charset: str) -> list[int]:
    """The charset's table of code points, for `text.put_table`.

    Its parts: code points by one byte; by two bytes, from 0x8000 on; by the last two bytes of three. For GB18030 the
    last part has the four-byte characters, in order."""
    return list(_code_table(charset))


@cache
def _code_table(charset: str) -> tuple[int, ...]:
    characters = charset_codes.characters(charset)
    if not charset_codes.is_multi_byte(charset):
        return tuple(_entry(characters.get(bytes([byte]), UNDEFINED)) for byte in range(256))
    lead = LEAD4 if charset == "gb18030" else LEAD2
    table = [UNDEFINED] * 65536
    of_three = [UNDEFINED] * 65536
    of_four = []
    for sequence, code in characters.items():
        match len(sequence):
            case 1:
                table[sequence[0]] = _entry(code)
            case 2:
                table[int.from_bytes(sequence, "big")] = _entry(code)
                table[sequence[0]] = lead
            case 3:
                of_three[int.from_bytes(sequence[1:], "big")] = _entry(code)
                table[sequence[0]] = LEAD3
            case _:
                of_four.append(_entry(code))
    return (*table, *(of_four or of_three))


def _entry(code: int | None) -> int:
    return UNMAPPED if code is None else code
