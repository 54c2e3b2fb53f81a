"""`values` of a pipeline's YAML: how column values are written, where that is not left to the format."""

from __future__ import annotations

from typing import Literal

from changefeed.formats.style import Encoding, Kind, Style
from changefeed.pipelines.section import Section

_KINDS = {
    "decimal": (Kind.DECIMAL,),
    "bigint_unsigned": (Kind.BIGINT_UNSIGNED,),
    "temporal": (Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP),
    "binary": (Kind.BINARY, Kind.GEOMETRY),
    "documents": (Kind.JSON,),
}
"""The kinds of columns that each of `values` is about."""


class ValueSettings(Section):
    """How values are written: what a `formats.style.Style` is made of."""

    decimal: Literal["string", "double", "precise"] = "string"
    """Text with all digits, a JSON number, or Connect's bytes in base64."""
    temporal: Literal["iso", "epoch"] = "iso"
    """ISO 8601 text, or numbers since 1970: days, milliseconds, or microseconds for a precision over 3."""
    binary: Literal["base64", "hex"] = "base64"
    bigint_unsigned: Literal["number", "string"] = "number"
    documents: Literal["text", "inline"] = "text"
    """JSON columns: a JSON string of the document's text, or the document itself."""

    @property
    def style(self) -> Style:
        """Those settings that were given, as the style that a format writes values in: it has defaults of its own."""
        return Style(
            {
                kind: Encoding(getattr(self, name))
                for name, kinds in _KINDS.items()
                if name in self.model_fields_set
                for kind in kinds
            }
        )
