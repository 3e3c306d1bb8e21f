"""Run a program that may not read other processes' memory, as containers have it: COMMAND…"""

import ctypes
import os
import platform
import struct
import sys

READV = {"x86_64": 310, "aarch64": 270}[platform.machine()]
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PERMIT, REFUSE_AS_EPERM = 0x7FFF0000, 0x00050001
RULES = [(LOAD_NUMBER, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, READV), (RETURN, 0, 0, REFUSE_AS_EPERM), (RETURN, 0, 0, PERMIT)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]


rules = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in RULES))
libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(RULES), ctypes.addressof(rules))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program)):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
