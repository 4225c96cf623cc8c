"""The tasks of Invoke: parse words, call one room, print what it returns."""
