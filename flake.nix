# The packages of release.nix for flakes: `nix build .#NAME`.
#
# Pure evaluation needs the hash of each pin, which `invoke prefetch` adds; without it, --impure.
# There are no inputs: the pins stand in matrix.toml.
{
  description = "PyTorch builds for your own hardware";

  outputs =
    { self }:
    let
      packagesOf = platform: import ./release.nix { inherit platform; impossibleHosts = false; };

      platforms = builtins.filter (platform: packagesOf platform != { }) [
        "x86_64-linux" "aarch64-linux" "aarch64-darwin"
      ];
      forEach = of: builtins.listToAttrs (
        map (platform: { name = platform; value = of platform; }) platforms
      );
    in
    {
      packages = forEach packagesOf;

      # For Hydra, which does not look for the tests of a package
      hydraJobs = forEach (platform: let packages = packagesOf platform; in
        packages // { tests = builtins.mapAttrs (_: package: package.tests) packages; });
    };
}
