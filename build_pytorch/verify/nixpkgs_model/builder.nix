# The builder of the model's packages, which replaces that of nixpkgs. It needs only a shell and
# writes the name of the package into every output, so that dependent packages can be built too.
#
# It is a separate file, so that a copy of the model can replace it: the tests of builds use a
# builder that prints the log of a PyTorch build.
{
  builder = "/bin/sh";
  args = [ "-c" ''for output in $outputs; do eval "echo \"\$name\" > \"\$$output\""; done'' ];
  # Returns whether a fetched source must have its hash, from the arguments of the fetcher. The
  # output of this builder never has the hash.
  checksHashes = _: true;
}
