"""What people see of compiling: a pass by an example, a step in text, how long each step takes."""
