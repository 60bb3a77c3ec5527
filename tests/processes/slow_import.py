"""A task module whose import takes until a gate is opened: it says that it has begun."""

import os
import time
from pathlib import Path

gates = Path(os.environ["TEST_GATES"])
(gates / "importing").touch()
deadline = time.monotonic() + 60
while not (gates / "import").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
