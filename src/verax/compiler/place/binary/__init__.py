"""From steps to a program: functions that call the kernels, one object, one binary of memory."""
