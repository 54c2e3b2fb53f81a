"""Texts that the kernel writes into messages besides rows: names of the file, GTID, xid, statement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.events.gtids import TAGGED, Gtid
from changefeed.binlog.kernel import layout
from changefeed.formats.notation import JSON, Notation, slot_text
from changefeed.formats.template import Slot
from changefeed.model.coordinates import file_number
from changefeed.native.memory import Bytes, Words
from changefeed.records.block import FOREIGN_KEYS_HEADER, ForeignKeys
from changefeed.records.varint import encode_bytes


class EventTexts:
    """The texts of one slice, in the ``notations`` of its messages; the kernel's ``state`` has their sizes.

    A text notation has a text in quotes, a binary notation has it after its length. If there are both, each text is
    stored twice.
    """

    def __init__(self, state: Words, notations: Sequence[Notation]) -> None:
        self.bytes: Bytes = np.zeros(layout.TEXT_BYTES, np.uint8)
        self.query: Bytes = np.zeros(4096, np.uint8)
        self.tagged: list[str] = []
        """Prefixes of tagged GTIDs; the kernel uses their indexes in this list."""
        self._state = state
        for said in ForeignKeys:
            header = encode_bytes(FOREIGN_KEYS_HEADER.encode()) + encode_bytes(said.name.lower().encode())
            self._store(layout.FOREIGN_KEYS_TEXTS + layout.FOREIGN_KEYS_TEXT * said, bytes([len(header)]) + header)
        self._binary = next((notation for notation in notations if notation.binary is not None), None)

    def set_origin(self, server_uuid: str, origin: str, file: str) -> None:
        """Set the beginning of event ids, and the binlog file that messages name.

        Raises DamagedEvent for names that are too long.
        """
        names, file_name = f"{server_uuid}/{origin}:".encode(), file.encode()
        if len(names) + len(file_name) > layout.GTID_TEXT - layout.NAMES:
            raise DamagedEvent(f"{origin!r} and {file!r} are longer than changefeed can carry in event ids")
        self._store(layout.NAMES, names + file_name)
        self._state[layout.NAMES_SIZE] = len(names)
        self._state[layout.FILE_NUMBER] = file_number(file)
        self._state[layout.FILE_AT] = layout.NAMES + len(names)
        self._state[layout.FILE_SIZE] = len(file_name)

    @property
    def gtid(self) -> str:
        """The GTID of the current transaction, or ''."""
        end = layout.GTID_TEXT + int(self._state[layout.GTID_SIZE])
        return self.bytes[layout.GTID_TEXT : end].tobytes().decode()

    def set_gtid(self, gtid: Gtid) -> None:
        """Set the GTID of the transaction of the next rows."""
        state = self._state
        text = gtid.text.encode()
        self._store(layout.GTID_TEXT, text)
        state[layout.GTID_SIZE] = len(text)
        state[layout.GTID_KIND] = gtid.kind
        state[layout.GTID_A] = gtid.a
        state[layout.GTID_B] = gtid.b
        state[layout.GTID_NUMBER] = gtid.number
        if gtid.kind == TAGGED:
            if not self.tagged or self.tagged[-1] != gtid.prefix:
                self.tagged.append(gtid.prefix)
            state[layout.GTID_A] = len(self.tagged) - 1
            state[layout.GTID_B] = 0

    def set_query(self, text: bytes) -> None:
        """Set the text of the statement of the next rows."""
        quoted, counted = self._encode(Slot.QUERY, text.decode("utf-8", "replace"))
        both = quoted + counted
        if len(both) > len(self.query):
            self.query = np.empty(2 * len(both), np.uint8)
        self.query[: len(both)] = np.frombuffer(both, np.uint8)
        self._state[[layout.QUERY_SIZE, layout.QUERY_COUNTED]] = len(quoted), len(counted)

    def set_xid(self, xid: str) -> None:
        """Set the xid of the XA transaction of the next rows; raises DamagedEvent if it is too long."""
        quoted, counted = self._encode(Slot.XID, xid)
        if len(quoted + counted) > layout.ID_TEXT - layout.XID_TEXT:
            raise DamagedEvent(f"an XA transaction's xid has {len(quoted)} characters")
        self._store(layout.XID_TEXT, quoted + counted)
        sizes = len(quoted), len(counted), len(quoted) - 2
        self._state[[layout.XID_SIZE, layout.XID_COUNTED, layout.PLAIN_XID_SIZE]] = sizes

    def _encode(self, slot: Slot, text: str) -> tuple[bytes, bytes]:
        """The bytes of ``text`` for ``slot`` in the text notations, and in the binary notation, if there is one."""
        return slot_text(JSON, slot, text), b"" if self._binary is None else slot_text(self._binary, slot, text)

    def _store(self, at: int, text: bytes) -> None:
        self.bytes[at : at + len(text)] = np.frombuffer(text, np.uint8)
