"""The numbers that Python and the kernel share: column kinds, ops, and the indexes of fields in their arrays."""

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
"""Address of what is done behind a value: STEPS words; -1 for nothing."""
SPEC_VALUE, SPEC_NULL, SPEC_MISSING = 8, 10, 12
"""Address and size of the literal before a value, of the one for NULL, and of the one for a column that the image does
not hold. Each begins with the separator; a size of 0 for either of the last two leaves the column out."""

# --- kinds of columns: how a value becomes text
# A kind is a number within its group, and `values.put_value` asks for the group first, as the kinds of one share a
# function that writes them. Groups are larger than every other number here.
GROUP = -1 << 16
"""What of a kind is its group."""

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
"""As DECIMAL_BYTES: the two's complement of an unsigned number in base64."""
BIT_FLAG = NUMBERS + 9
"""true or false."""
BIT_BYTES = NUMBERS + 10
"""The bits as bytes in base64, the lowest first."""

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

# how one is written, their d: as text, and from EPOCH on as a number
ISO, SQL, PARTS, ZONED, OFFSET, EPOCH, VARINT, NANOS, OF_DAY = 0, 1, 2, 3, 4, 5, 6, 7, 8
STRICT = 16
"""Added where the column has no NULL: what cannot be written so is a fault, and not written as if it were NULL."""

STRINGS = 4 << 16
UTF8 = STRINGS + 1
"""a: 1 where nobody knows whether it is text or bytes; b: the kind that what is not UTF-8 is written as."""
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
"""A masked column: address and size of the literal that stands for each value."""
GEOMETRY_STRUCT = OTHERS + 8
"""a: 1 for a point, whose coordinates come first."""

BINARIES = 7 << 16
"""Values that are no text: see `binary`. `values` tells them, and those with SIZED, by being larger."""
LONG = BINARIES + 1
"""a: bytes of the integer; b: 1 where it has a sign."""
LONG_YEAR = BINARIES + 2
LONG_TIME = BINARIES + 3
"""a, b: as of a date or time; c: its kind."""
FLAG = BINARIES + 4
COPY = BINARIES + 5
"""a: bytes, which are written as they are."""
WIDE_FLOAT = BINARIES + 6
UNSCALED = BINARIES + 7
"""A DECIMAL's number without its point; a, b: its precision and scale. UNSIGNED_WORD: so an integer of a bytes."""
SIZED_BYTES = BINARIES + 8
"""a: bytes that it is padded to."""
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
"""A DOUBLE(M,D); a: 1 and its decimals."""
"""A value that is written already, in text or binary: its bytes are copied."""

SIZED = 1 << 24
"""Added to a kind that writes a JSON string without escapes: the same text, with its length before it."""

# --- behind a value, STEPS words: a mask's kind and its three parameters, address and size of the literal that ends it,
# and 1 where what the mask makes is to stand behind its length, instead of in quotes
STEPS_LITERAL = 4
STEPS_SIZED = 6
STEPS = 7
MASK_NONE = 0
MASK_FIRST = 1
"""Number of characters that are kept."""
MASK_SHA256 = 2
"""Address and size of what is hashed before the text: the salt."""
MASK_HMAC_SHA256 = 3
"""As MASK_SHA256, of the key's inner block; then the address of its outer block."""

# --- ops of row changes, by which a table's value programs and a counter's counts are numbered
CREATE, UPDATE, DELETE, READ = 0, 1, 2, 3
OPS = 4
COUNTS = 2 * OPS
"""Words of a counter: published rows by op, and those that the filter left out."""
NO_VALUE = OPS
"""In an op's stead: the message is a tombstone."""
KEY_CHANGE = 4
"""An update of the primary key; the other kinds of changes have the numbers of their ops."""
CHANGES = 5

# --- the messages that a kind of change becomes, MADE words: their number, then for each its step, op, key's image, and
# the address of its headers: their number and the program that writes them; -1 for none
MADE = 13

# --- a table's header
TABLE_COLUMNS = 0
TABLE_SPECS = 1
TABLE_CAPTURED = 2
TABLE_KEY = 3
"""Address of the key's program; -1 for messages without a key."""
TABLE_VALUES = 4
"""Addresses of the programs of the values of c, u, d, r: OPS words."""
TABLE_GROUP = 8
TABLE_PARTITIONS = 9
TABLE_MESSAGES = 10
"""What each kind of change becomes: CHANGES times MADE words."""
TABLE_KEY_COLUMNS = 11
"""Address of the columns whose change is a change of key: their count, then the index of each."""
TABLE_COUNTER = 12
TABLE_REWRITE = 13
"""1: rows hold MariaDB COMPRESSED columns, and Python rewrites their events first."""
TABLE_KEY_CHOSEN = 14
"""1: its key may be other columns than the primary key's, which each image has; so that images are looked at first."""
TABLE_CONSTANTS = 15
"""1: a column behind those of the images has the same value in each row: a literal."""
TABLE_PARTITION = 16
"""The partition of all of its messages; -1 where it follows from the message."""
TABLE_PARTITION_PROGRAM = 17
"""Address of the program that writes what is hashed for the partition in the key's stead; -1 for the key."""
TABLE_SKIPPED = 18
"""A bit for each op whose rows are left out."""
TABLE_FILTER = 19
"""Address of the filter that rows have to pass; -1 for none."""
TABLE_CURRENT = 20
"""Address of the filter that an image passes which is of a current row, of a table that keeps history too; else -1."""
TABLE_UNCHANGED = 21
"""Address of the list of columns of which an update has to change one; -1 where each update is published."""
TABLE_NAME = 22
"""Address and size of the literal before the number of its events in the record of a transaction's end."""
TABLE_SPREAD = 24
"""1: its key says where the row is in the binlog, and is another one on each server, so partitions follow from the
transaction as those of null keys do."""
TABLE_FOREIGN_KEYS = 25
"""1: its messages have a header on foreign keys where the rows event says something of them; 2: and always, as a key
refers to the table; 0: never."""
TABLE = 26

# --- what a table is to the pipeline, in TABLE_CAPTURED
COUNTED, CAPTURED, PASSED_OVER = 0, 1, 2
"""Left out, its rows counted; published; left out, its rows not looked at, as what its columns are is not known."""

# --- a row filter: the number of its steps, then FILTER words each: code, image, column, relation, constant, and of a
# number whether it is unsigned, of bytes their size. Of a pattern: 1 in the relation's stead where characters are those
# of UTF-8, the address of its words, and their number: bytes, ANY_ONE and ANY
FILTER = 6
FILTER_NUMBER, FILTER_BYTES, FILTER_NULL, FILTER_NOT, FILTER_AND, FILTER_OR, FILTER_LIKE = 1, 2, 3, 4, 5, 6, 7
ANY_ONE, ANY = -1, -2
"""In a pattern: one character, and any number of them."""
LESS, EQUAL, GREATER = 1, 2, 4
"""How a value stands to a constant; a relation is those for which a test is true."""
ROW_IMAGE = -1
"""The image that the op is about: before of a delete, after of all others."""
MAX_FILTER = 512
"""Steps of a filter: its stack is a part of the scratch words."""

# --- ops of a program, OP words each; the program begins with its number of ops
OP = 3
OP_LITERAL = 1
OP_OBJECT = 2
"""image (0 before, 1 after, 2 the key's), list of columns: LIST words (their count, the size of the separator, the
address of the columns' words), then the columns."""
OP_FILE = 3
OP_POSITION = 4
OP_ROW = 5
OP_GTID = 6
"""Like OP_QUERY and OP_XID: address and size of the literal for what is absent."""
OP_SERVER_ID = 7
OP_TS = 8
OP_QUERY = 9
OP_XID = 10
OP_SAME = 11
"""Begin of a stretch of ops that write the same for each row of an event. a: its number; b: the op behind its end."""
OP_SAME_END = 12

OP_PART = 13
"""Begin of the ops of a part, whose length as a varint is to stand before it."""
OP_PART_END = 14
OP_TEXT = 15
"""A text of the transaction as it is, nothing where there is none. a: the state word with its size; b: its address."""
OP_EVENT_TYPE, OP_EVENT_SIZE, OP_EVENT_END, OP_EVENT_FLAGS = 16, 17, 18, 19
"""Of the event as the source wrote it."""
OP_CHANGED = 20
"""b: address and size of three literals, the row's opening, its closing, and what stands for a row without columns;
then a list of columns as OP_OBJECT's."""
OP_SEPARATOR = 21
"""Address and size of the literal that is written where the last OP_OBJECT wrote a column."""
OP_EVENT_ID = 22
OP_TIME = 23
OP_SEQUENCE = 24

OP_MILLIS, OP_MICROS = 25, 26
"""When the change was committed; the event's second where nothing says it."""
OP_THREAD = 27
"""Address and size of the literal that stands where nobody knows it."""
OP_COMMIT_INFO = 32
"""a: 1 where the number of the row is wanted. It writes nothing, and leaves room for what `commit_info` fills in."""
OP_QUERY_COUNTED, OP_XID_COUNTED = 28, 29
"""As OP_QUERY and OP_XID, in a binary notation."""

OP_LONG = 30
"""A number as a varint. a: which, as the op that writes its digits; b: what it is multiplied by."""
OP_GTID_SIZED = 31
"""a: address of two literals: what stands where there is no GTID, and what stands before one and its length."""
OP_TRANSACTION, OP_EVENT_COUNT, OP_EVENT_COUNTS = 34, 35, 36
"""a: address of literals: outside of a transaction, before id and orders, behind. Of its messages; of each table's."""

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
"""Number of the statement whose TABLE_MAP it is."""

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
"""Where the part at hand begins in the output."""
OBJECT = PART + 1
"""Where the last row begins in the output, behind what opens it."""
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
"""The id of the transaction at hand."""
FOREIGN_KEYS_TEXTS = 5632
"""By `records.block.ForeignKeys` the header that says it, FOREIGN_KEYS_TEXT bytes each: its size, then the bytes."""
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
"""Address in the event's body to go on at, after the rows that fitted the buffer; 0 for its first row."""
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
"""0 outside, 1 inside a transaction, 2 behind a GTID that a statement or BEGIN must follow."""
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
"""Of the event that Python has rewritten, as the source wrote it; 0 for all others, whose header says it."""
EVENT_END = 35
"""Behind the event that holds the events at hand; those that no other holds end behind POSITION by their own size."""
ID_SIZE = 36
"""Of the event ids of the rows at hand, up to the row."""
FILE_NUMBER = 37
"""The number in the file's name."""
COMMIT_MICROS = 38
"""When the transaction at hand was committed where it was made, in microseconds since 1970; 0 where nothing says it."""
THREAD = 39
"""The connection that the transaction at hand was made by, as its BEGIN says; 0 where nothing says it."""
QUERY_COUNTED, XID_COUNTED = 40, 41
"""Sizes of the same texts in the binary notation, behind those in quotes."""
COUNTED = QUERY_COUNTED - QUERY_SIZE
"""From a text's size to that of the counted one."""
PLAIN_XID_SIZE = 42
"""Of the xid without its quotes."""
COMMIT_INFOS = 43
"""How many messages in the buffer leave room for what the end of their transaction says: `commit_infos` has them."""
SETTLED = 44
"""How many of those are of transactions that have ended."""
IN_PARTS = 45
"""1 where rows of the transaction at hand are elsewhere, or void: nothing is said of its end then."""
ORDERED, TRANSACTION_RECORDS = 46, 47
"""1: messages are numbered by transaction. Address of the header by which its records are written; -1 for none."""
TRANSACTION_SIZE, TRANSACTION_NUMBER, TRANSACTION_EVENTS, TRANSACTION_TABLES, TABLE_ORDER = 48, 49, 50, 51, 52
"""Of the transaction at hand: size of its id, 0 for none; number, from 1; messages, tables; the table's last number."""
SPLIT_PART = 53
"""Which of the changes that a function made of one row the current row is; 0 for the first, and without functions."""
STATEMENT_ROW = 54
"""Number of the next row of a captured table in its statement: the same on each server that has the transaction."""
FOREIGN_KEYS = 55
"""What the rows event at hand says of foreign keys (`records.block.ForeignKeys`); 0 for no header."""
EVENT_FIRST_ROW = 56
"""Number of the first row of the rows event at hand: 0, but of one that shares its position with others before it."""
STATE_WORDS = 57

# --- the commit infos, COMMIT_INFO words each
COMMIT_INFO = 5
INFO_AT = 0
"""Where in the buffer it belongs."""
INFO_MESSAGE = 1
"""The number of its message in the buffer."""
INFO_OFFSETS = 2
"""1 where the number of the row within its transaction is wanted."""
INFO_XID = 3
"""What its transaction's XID event says; -1 where it ends with none."""
INFO_ROW = 4
"""Its number among the rows of its transaction that have such an info."""
UNSAID, LAST_ROW = -2, -1
"""In INFO_ROW's stead: there is nothing to say, or it is the transaction's last row."""

# --- what the kernel returns, when it is no fault
MORE = 1
"""The input ends inside an event."""
TABLE_WANTED = 2
"""The event is a TABLE_MAP that the index does not hold."""
EVENT = 3
"""The event needs Python."""
ROOM = 4
"""The buffer is full: hand over what is finished, or grow it."""
DRAIN = 5
"""The list of GTIDs is full."""
REWRITE = 6
"""The rows event must be rewritten by Python first."""

# --- the list of GTIDs in binlog order, RUN words each: kind, a, b, first, last
RUN = 5
MAX_RUNS = 1024
