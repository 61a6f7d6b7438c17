"""What may stand in the fields of certificates: finite numbers, indices, hashes and short texts, nothing converted silently."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Index = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
Distance = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Text = Annotated[str, Field(max_length=10_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
NO_MORE = ConfigDict(extra="forbid")
