# What the revision of nixpkgs in a URL contains: its default Python, its torch, its CUDA package
# sets, the fixes in it and its companions of torch. A revision that is not known is like the default.
{
  lib,
  revisions,
  url,
}:
let
  default = {
    torch = "2.9.1";
    python = "3.13";
    cuda = {
      cudaPackages_12_8 = "12.8";
      cudaPackages_12_9 = "12.9";
      cudaPackages_13 = "13.0";
      cudaPackages_13_0 = "13.0";
    };
    has = [ ];
    companions = { };
  };
  rev = if url == null then null else builtins.match ".*/archive/([0-9a-f]{40})[.].*" url;
in
if rev == null then default else revisions.${lib.head rev} or default
