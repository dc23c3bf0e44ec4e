"""python -m benchmarks.pages"""

import sys

from benchmarks.pages.write import main

if __name__ == "__main__":
    sys.exit(main())
