"""What a user names or hands over as a subject: `resolve` says what it is, `factory` makes the
Runner. These files import the registry, which imports every module of the folder above.
"""
