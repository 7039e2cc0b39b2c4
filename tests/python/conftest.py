import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
