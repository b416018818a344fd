"""The service, which accepts any setting for the memory of a worker: as if each had soon grown past its limit."""

from persistence import settings
from persistence.cli import main

if __name__ == "__main__":
    settings.LEAST_WORKER_MEMORY = 1
    main()
