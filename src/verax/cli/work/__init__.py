"""What each command does once its options are read: one module a command, with one function
`perform`. These import what takes its time, and are imported only when a command is carried out;
what the command line accepts, and its help, are in the modules of the same names a level up."""
