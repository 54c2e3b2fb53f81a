"""The numbers that Python and the kernel share: kinds of columns, ops, and indexes of fields in their arrays."""

# kernels read this file
from __future__ import annotations

# --- a column of a table, SPEC words each
SPEC = 14
SPEC_FIXED = 0
"""Size of a value in bytes, if its prefix is 0."""
SPEC_PREFIX = 1
"""Size in bytes of the length before each value; 0 for columns whose values have a fixed size."""
SPEC_KIND = 2
SPEC_A, SPEC_B, SPEC_C, SPEC_D = 3, 4, 5, 6
SPEC_STEPS = 7
"""Address of the steps after a value: STEPS words; -1 for none."""
SPEC_VALUE, SPEC_NULL, SPEC_MISSING = 8, 10, 12
"""Address and size of three literals: before a value, for NULL, and for a column that the image does not have.
Each begins with the separator. If the literal for NULL or for a missing column has size 0, the column is omitted."""

# --- kinds of columns: how a value becomes text
# A kind is the sum of its group and a number. `values.put_value` first branches by the group, because one function
# writes all kinds of a group. Groups are larger than all other numbers here.
GROUP = -1 << 16
"""The mask of a kind's group."""

NUMBERS = 1 << 16
SIGNED = NUMBERS + 1
UNSIGNED = NUMBERS + 2
UNSIGNED_TEXT = NUMBERS + 3
YEAR = NUMBERS + 4
BIT = NUMBERS + 5
FLOAT = NUMBERS + 6
DOUBLE = NUMBERS + 7
"""a: 1 and the decimals of DOUBLE(M,D), 0 for DOUBLE."""
UNSIGNED_BYTES = NUMBERS + 8
"""The two's complement of an unsigned number in base64, as in DECIMAL_BYTES."""
BIT_FLAG = NUMBERS + 9
"""true or false."""
BIT_BYTES = NUMBERS + 10
"""The bits as bytes in base64, the lowest byte first."""

DECIMALS = 2 << 16
DECIMAL_TEXT = DECIMALS + 1
DECIMAL_NUMBER = DECIMALS + 2
DECIMAL_BYTES = DECIMALS + 3

TEMPORALS = 3 << 16
DATE = TEMPORALS + 1
TIME2 = TEMPORALS + 2
DATETIME2 = TEMPORALS + 3
TIMESTAMP2 = TEMPORALS + 4
TIME_OLD = TEMPORALS + 5
DATETIME_OLD = TEMPORALS + 6
TIMESTAMP_OLD = TEMPORALS + 7

# SPEC_D of a date or time: how the value is written, up to OFFSET as text, from EPOCH on as a number
ISO, SQL, PARTS, ZONED, OFFSET, EPOCH, VARINT, NANOS, OF_DAY = 0, 1, 2, 3, 4, 5, 6, 7, 8
STRICT = 16
"""Added if the column is NOT NULL: a value that this form cannot express is a fault instead of NULL."""

STRINGS = 4 << 16
UTF8 = STRINGS + 1
"""a: 1 if it is unknown whether the column is text or bytes; b: then the kind for values that are not UTF-8."""
CODE_TABLE = STRINGS + 2
UTF16 = STRINGS + 3
UTF32 = STRINGS + 4
BASE64 = STRINGS + 5
HEX = STRINGS + 6
BYTE_NUMBERS = STRINGS + 7
BASE64_URL = STRINGS + 8

LABELS = 5 << 16
ENUM = LABELS + 1
SET = LABELS + 2
SET_ARRAY = LABELS + 3

OTHERS = 6 << 16
JSON = OTHERS + 1
GEOMETRY = OTHERS + 2
VECTOR = OTHERS + 3
UUID = OTHERS + 4
INET4 = OTHERS + 5
INET6 = OTHERS + 6
CONSTANT = OTHERS + 7
"""A masked column: address and size of the literal that replaces each value."""
GEOMETRY_STRUCT = OTHERS + 8
"""a: 1 for a point, whose coordinates come first."""

BINARIES = 7 << 16
"""Values that are not text: see `binary`. `values` recognizes these kinds, and kinds with SIZED, by their number: all
other kinds are less than BINARIES."""
LONG = BINARIES + 1
"""a: size of the integer in bytes; b: 1 if it has a sign."""
LONG_YEAR = BINARIES + 2
LONG_TIME = BINARIES + 3
"""a, b: as in the kind of a date or time; c: that kind."""
FLAG = BINARIES + 4
COPY = BINARIES + 5
"""The bytes of the value, unchanged. a: their number."""
WIDE_FLOAT = BINARIES + 6
UNSCALED = BINARIES + 7
"""A DECIMAL's number without its point; a, b: its precision and scale. UNSIGNED_WORD, below, is the same for an
unsigned integer; a: its size in bytes."""
SIZED_BYTES = BINARIES + 8
"""a: the size in bytes to which the value is padded."""
SIZED_BITS = BINARIES + 9
SIZED_UTF8 = BINARIES + 10
SIZED_TABLE = BINARIES + 11
SIZED_UTF16 = BINARIES + 12
SIZED_UTF32 = BINARIES + 13
SIZED_JSON = BINARIES + 14
SHAPE = BINARIES + 15
SHAPE_POINT = BINARIES + 16
SINGLES, UNSIGNED_WORD = BINARIES + 17, BINARIES + 18
WRITTEN = BINARIES + 19
ROUNDED = BINARIES + 20
"""WRITTEN: a value that is encoded already, as text or binary: its bytes are copied. ROUNDED: a DOUBLE(M,D); a: 1 and
its decimals."""

SIZED = 1 << 24
"""Added to a kind that writes a JSON string without escapes: the text comes after its length instead of in quotes."""

# --- steps after a value, STEPS words: the kind of the mask and its three parameters; address and size of the literal
# after the value; 1 if the masked text comes after its length instead of in quotes
STEPS_LITERAL = 4
STEPS_SIZED = 6
STEPS = 7
MASK_NONE = 0
MASK_FIRST = 1
"""Keeps the first characters. Parameter: their number."""
MASK_SHA256 = 2
"""Parameters: address and size of the salt, which is hashed before the text."""
MASK_HMAC_SHA256 = 3
"""Parameters: address and size of the key's inner block, and the address of its outer block."""

# --- ops of row changes; they number the value programs of a table and the counts of a counter
CREATE, UPDATE, DELETE, READ = 0, 1, 2, 3
OPS = 4
COUNTS = 2 * OPS
"""Words of a counter: published rows by op, then filtered rows by op."""
NO_VALUE = OPS
"""Instead of an op: the message is a tombstone."""
KEY_CHANGE = 4
"""An update of the primary key; the other kinds of changes have the numbers of their ops."""
CHANGES = 5

# --- the messages of a kind of change, CHANGE_WORDS words: their number, then for each message four words: step, op,
# the image of the key, and the address of its headers (their number and the program that writes them; -1 for no
# headers)
CHANGE_WORDS = 13

# --- a table's header
TABLE_COLUMNS = 0
TABLE_SPECS = 1
TABLE_CAPTURED = 2
TABLE_KEY = 3
"""Address of the key's program; -1 for messages without a key."""
TABLE_VALUES = 4
"""Addresses of the programs that write the values of the ops c, u, d, r: OPS words."""
TABLE_GROUP = 8
TABLE_PARTITIONS = 9
TABLE_MESSAGES = 10
"""The messages of each kind of change: CHANGES times CHANGE_WORDS words."""
TABLE_KEY_COLUMNS = 11
"""Address of the columns whose change is a change of key: their count, then the index of each."""
TABLE_COUNTER = 12
TABLE_REWRITE = 13
"""1: rows hold MariaDB COMPRESSED columns, and Python rewrites their events first."""
TABLE_KEY_CHOSEN = 14
"""1: the key may have other columns than the primary key, so the kernel checks that images have them."""
TABLE_CONSTANTS = 15
"""1: the table has one more column, after those of the images, whose value is the same literal in each row."""
TABLE_PARTITION = 16
"""The partition of all messages of the table; -1 if it follows from the message."""
TABLE_PARTITION_PROGRAM = 17
"""Address of the program that writes the text to hash for the partition; -1 if the key is hashed."""
TABLE_SKIPPED = 18
"""A bit for each op whose rows are excluded."""
TABLE_FILTER = 19
"""Address of the filter that rows have to pass; -1 for none."""
TABLE_CURRENT = 20
"""Address of the filter for images of current rows, if the table is system-versioned and its history is not published;
else -1."""
TABLE_UNCHANGED = 21
"""Address of a list of columns: an update is published only if it changes one of them. -1 if all are published."""
TABLE_NAME = 22
"""Address and size of the literal before the table's number of messages, in the record of a transaction's end."""
TABLE_SPREAD = 24
"""1: the key has the row's coordinates, which differ on each server. So the partition follows from the transaction, as
for null keys."""
TABLE_FOREIGN_KEYS = 25
"""Whether messages have a header on foreign keys. 0: never; 1: if the session of the rows event had
foreign_key_checks=0; 2: always, because a foreign key refers to the table."""
TABLE = 26

# --- values of TABLE_CAPTURED: how the pipeline treats a table
COUNTED, CAPTURED, SKIPPED = 0, 1, 2
"""COUNTED: its rows are excluded, and counted. CAPTURED: its rows are published. SKIPPED: its rows are excluded and not
read, because its columns are unknown."""

# --- a row filter: the number of its steps, then FILTER words for each step:
# - a test of a number: code, image, column, relation, constant, whether the number is unsigned
# - a test of bytes: code, image, column, relation, address of the constant, its size
# - a pattern: code, image, column, 1 if characters are UTF-8, address of the pattern's words, their number; a word is a
#   byte, ANY_ONE or ANY
FILTER = 6
FILTER_NUMBER, FILTER_BYTES, FILTER_NULL, FILTER_NOT, FILTER_AND, FILTER_OR, FILTER_LIKE = 1, 2, 3, 4, 5, 6, 7
ANY_ONE, ANY = -1, -2
"""In a pattern: one character, and any number of them."""
LESS, EQUAL, GREATER = 1, 2, 4
"""Results of comparing a value with a constant. A relation is the sum of the results for which a test is true."""
ROW_IMAGE = -1
"""The image of the op: before of a delete, after of all others."""
MAX_FILTER = 512
"""The most steps of a filter, because its stack is a part of the scratch words."""

# --- ops of a program, OP words each: the code, and its parameters a and b. A program begins with its number of ops
OP = 3
OP_LITERAL = 1
OP_OBJECT = 2
"""a: the image (0 before, 1 after, 2 the key's). b: address of a list of columns: LIST words (the number of columns,
the size of the separator, the address of the columns' words), then the columns."""
OP_FILE = 3
OP_POSITION = 4
OP_ROW = 5
OP_GTID = 6
"""a, b: address and size of the literal that is written without a GTID. OP_QUERY and OP_XID are likewise."""
OP_SERVER_ID = 7
OP_TS = 8
OP_QUERY = 9
OP_XID = 10
OP_SAME = 11
"""Begin of a range of ops that write the same bytes for each row of an event. a: number of the range; b: the op after
its end."""
OP_SAME_END = 12

OP_PART = 13
"""Begin of the ops of a part. The part's length, a varint, is written before it."""
OP_PART_END = 14
OP_TEXT = 15
"""A text of the transaction without changes, or nothing. a: the state word with its size; b: its address."""
OP_EVENT_TYPE, OP_EVENT_SIZE, OP_EVENT_END, OP_EVENT_FLAGS = 16, 17, 18, 19
"""Type, size, end and flags of the event as the source wrote it."""
OP_CHANGED = 20
"""b: address of three literals (each: address and size) and a list of columns as in OP_OBJECT. The literals: the row's
opening, its closing, and the text of a row without columns."""
OP_SEPARATOR = 21
"""Address and size of the literal that is written if the last OP_OBJECT wrote a column."""
OP_EVENT_ID = 22
OP_TIME = 23
OP_SEQUENCE = 24

OP_MILLIS, OP_MICROS = 25, 26
"""The commit time of the change; if it is unknown, the time of the event, in seconds."""
OP_THREAD = 27
"""a, b: address and size of the literal for an unknown connection."""
OP_COMMIT_INFO = 32
"""a: 1 if the commit info includes the number of the row. The op only notes the place; `commit_info` writes there."""
OP_QUERY_COUNTED, OP_XID_COUNTED = 28, 29
"""OP_QUERY and OP_XID for a binary notation."""

OP_LONG = 30
"""A number as a varint. a: the op that would write the number's digits; b: the factor."""
OP_GTID_SIZED = 31
"""a: address of two literals: the text without a GTID, and the text before the length of a GTID."""
OP_TRANSACTION, OP_EVENT_COUNT, OP_EVENT_COUNTS = 34, 35, 36
"""OP_TRANSACTION: the transaction's id and the message's two orders. a: address of five literals: the text outside of a
transaction, then the texts before each of the three values and after the last. OP_EVENT_COUNT: the transaction's number
of messages. OP_EVENT_COUNTS: the same by table."""
OP_PARTITION_INFO = 39
"""a: address of two literals: before the partition's id, and before that of an update's source."""

OP_STATEMENT_ROW = 37
OP_EVENT_FIRST_ROW = 38

LIST = 3

MAX_SAME = 32

# --- the index of table maps, ENTRY words each, open addressing
ENTRY = 5
ENTRY_ID = 0
"""table id + 1; 0 for a free entry."""
ENTRY_TABLE = 1
ENTRY_BODY = 2
ENTRY_BODY_SIZE = 3
ENTRY_GENERATION = 4
"""Number of the statement that the TABLE_MAP belongs to."""

# --- scratch words
MAX_COLUMNS = 4096
IMAGE = 2 * MAX_COLUMNS
"""Words of an image: the address of each column's value (or NULL or ABSENT), then the size of each."""
NULL = -1
ABSENT = -2
CHANGED_IMAGE = 2 * IMAGE
"""The before image without the columns that did not change."""
STACK = 3 * IMAGE
LIMBS = STACK + 128 * 6
SAME = LIMBS + 16
SHA256 = SAME + 2 * MAX_SAME
"""The digest's state, then a block's schedule."""
PART = SHA256 + 8 + 64
"""Where the current part begins in the output."""
OBJECT = PART + 1
"""Where the last row begins in the output, after its opening."""
SCRATCH_WORDS = OBJECT + 1

# --- texts, all in one byte array
NAMES = 0
"""`server_uuid/file:`"""
GTID_TEXT = 1024
XID_TEXT = 1536
"""The XA transaction's xid as a JSON string."""
ID_TEXT = 2560
"""Scratch: the event id without its row."""
TRANSACTION_TEXT = 4096
"""The id of the current transaction."""
FOREIGN_KEYS_TEXTS = 5632
"""A header for each value of `records.block.ForeignKeys`, in FOREIGN_KEYS_TEXT bytes: its size, then its bytes."""
FOREIGN_KEYS_TEXT = 64
TEXT_BYTES = FOREIGN_KEYS_TEXTS + 4 * FOREIGN_KEYS_TEXT

# --- state words
AT = 0
"""Address of the next event in the input."""
FILLED = 1
"""Bytes of the input that have arrived."""
POSITION = 2
"""Position of the next event in the file."""
LEFT = 3
"""Bytes from there to the end of the slice."""
INNER = 4
"""1 for the events inside a TRANSACTION_PAYLOAD, which share its position and its run of row numbers."""
CHECKSUMS = 5
ROW_AT = 6
"""Address of the event's next row, if the previous rows filled the buffer; 0 to begin at its first row."""
ROW = 7
"""Number of the next row of the event."""
OUT = 8
MESSAGES = 9
EVENTS = 10
BYTES = 11
TRANSACTIONS = 12
FIRST_TS = 13
LAST_TS = 14
GTID_SIZE = 15
GTID_KIND = 16
"""0 none, 1 MySQL's uuid:n, 2 MariaDB's, 3 a tagged GTID, which Python keeps."""
GTID_A, GTID_B, GTID_NUMBER = 17, 18, 19
NAMES_SIZE = 20
FILE_AT = 21
FILE_SIZE = 22
QUERY_SIZE = 23
XID_SIZE = 24
GENERATION = 25
IN_TRANSACTION = 26
"""0 outside of a transaction, 1 inside one, 2 after a GTID: a statement or BEGIN must follow."""
RUNS = 27
SKIPPED_ROWS = 28
NO_TABLE = 29
"""The table id of a rows event without a TABLE_MAP."""
INDEX_MASK = 30
COMMITTED = 31
"""Position of the last commit boundary that was reached."""
READS = 32
"""1: WRITE_ROWS events hold rows that a SELECT read, and their op is READ."""
EVENT_TYPE, EVENT_SIZE = 33, 34
"""Type and size that an event had before Python rewrote it; 0 for all other events, whose header has them."""
EVENT_END = 35
"""The end of the event that contains the current ones. Other events end at POSITION plus their own size."""
ID_SIZE = 36
"""The size of the part of an event id before the row's number, for the current event."""
FILE_NUMBER = 37
"""The number in the file's name."""
COMMIT_MICROS = 38
"""Commit time of the current transaction on its original server, in microseconds since 1970; 0 if unknown."""
THREAD = 39
"""The connection of the current transaction, from its BEGIN; 0 if unknown."""
QUERY_COUNTED, XID_COUNTED = 40, 41
"""Sizes of the statement and the xid in the binary notation; these texts come after those in quotes."""
COUNTED = QUERY_COUNTED - QUERY_SIZE
"""The distance from the state word of a quoted text's size to the word of the same text's size in the binary
notation."""
PLAIN_XID_SIZE = 42
"""Size of the xid without its quotes."""
COMMIT_INFOS = 43
"""The number of notes in `commit_infos`: messages in the buffer that get a commit info."""
RESOLVED = 44
"""The number of notes whose transaction has ended."""
IN_PARTS = 45
"""1 if rows of the current transaction are in another slice, are emitted or are void: its rows get no commit info."""
ORDERED, TRANSACTION_RECORDS = 46, 47
"""ORDERED: 1 if messages are numbered by transaction. TRANSACTION_RECORDS: address of the table header for the
transaction records; -1 for none."""
TRANSACTION_SIZE, TRANSACTION_NUMBER, TRANSACTION_EVENTS, TRANSACTION_TABLES, TABLE_ORDER = 48, 49, 50, 51, 52
"""Of the current transaction: size of its id (0 for none); its number, from 1; number of its messages; number of its
tables; the last number in the order of the current table."""
SPLIT_PART = 53
"""The index of the current row among the changes that a function made of one row; 0 without functions."""
STATEMENT_ROW = 54
"""Number of the next row of a captured table in its statement: the same on each server that has the transaction."""
FOREIGN_KEYS = 55
"""The current rows event's `records.block.ForeignKeys`; 0 for no header."""
EVENT_FIRST_ROW = 56
"""Number of the first row of the current rows event. More than 0 if earlier events with rows share its position."""
PARTITION_ID, SOURCE_PARTITION_ID = 57, 58
"""The partition of the current rows event, and the source partition of an update; each plus 1, 0 for none."""
STATE_WORDS = 59

# --- the commit infos, COMMIT_INFO words each
COMMIT_INFO = 5
INFO_AT = 0
"""The offset in the buffer at which the info is inserted."""
INFO_MESSAGE = 1
"""The number of its message in the buffer."""
INFO_OFFSETS = 2
"""1 if the number of the row within its transaction is written."""
INFO_XID = 3
"""The number of its transaction's XID event; -1 without one."""
INFO_ROW = 4
"""The row's number among the rows of its transaction with a commit info."""
UNSAID, LAST_ROW = -2, -1
"""Instead of INFO_ROW: no info, or the transaction's last row."""

# --- the codes that the kernel returns; faults are negative
MORE = 1
"""The input ends inside an event."""
NEW_TABLE_MAP = 2
"""The event is a TABLE_MAP that the index does not have."""
EVENT = 3
"""The event needs Python."""
ROOM = 4
"""The buffer is full: emit the finished messages, or grow it."""
DRAIN = 5
"""The list of GTIDs is full."""
REWRITE = 6
"""The rows event must be rewritten by Python first."""

# --- the list of GTIDs in binlog order, RUN words each: kind, a, b, first, last
RUN = 5
MAX_RUNS = 1024
