"""``python -m kafka_sluice``."""

from . import main

if __name__ == "__main__":
    main()
