# Who builds the model's packages. Not nixpkgs' builder: it fills every output with the name of the
# package, with nothing but a shell, so that what depends on this package can be built as well.
#
# A file of its own, so that a copy of the model can have another one: the tests of builds put one
# here that prints what a build of PyTorch prints.
{
  builder = "/bin/sh";
  args = [
    "-c"
    ''for output in $outputs; do eval "echo \"\$name\" > \"\$$output\""; done''
  ];
  # Whether what is fetched has to have its hash, by the arguments of its fetcher. What a stand-in
  # makes never has it.
  checksHashes = _: true;
}
