"""The tasks of Invoke; each is a function in build_pytorch/tasks/."""

import signal

from build_pytorch.tasks.build import build
from build_pytorch.tasks.bump import bump, outdated
from build_pytorch.tasks.compare import compare
from build_pytorch.tasks.diagnose import diagnose, log
from build_pytorch.tasks.init import init
from build_pytorch.tasks.inspect import inspect
from build_pytorch.tasks.machine import doctor, recommend
from build_pytorch.tasks.phases import all_, phase1, phase2, phase3, phase4, phase5
from build_pytorch.tasks.prefetch import prefetch
from build_pytorch.tasks.publish import publish
from build_pytorch.tasks.show import show
from build_pytorch.tasks.smoke import smoke
from build_pytorch.tasks.status import status
from build_pytorch.tasks.verify import verify

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `invoke --list | head`; tasks ignore it
