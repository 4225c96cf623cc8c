# The packages of release.nix for flakes: `nix build .#NAME`, `nix run .#recommend`.
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

      # That of the packages
      pythonOf = platform: (builtins.head (builtins.attrValues (packagesOf platform))).pythonModule;

      # torch-for-me.pyz of this checkout
      programOf = platform:
        let
          python = pythonOf platform;
        in
        derivation {
          name = "torch-for-me";
          system = platform;
          builder = python.interpreter;
          PYTHONPATH = "${self}:${python.pkgs.nvidia-ml-py}/lib/${python.libPrefix}/site-packages";
          args = [
            "-m" "build_pytorch.generate.standalone"
            "${placeholder "out"}/bin/torch-for-me" python.interpreter
          ];
        };
    in
    {
      packages = forEach packagesOf;

      # For Hydra
      hydraJobs = forEach packagesOf;

      apps = forEach (platform: {
        recommend = { type = "app"; program = "${programOf platform}/bin/torch-for-me"; };
      });

      # Compiles nothing: the program answers for a machine.
      checks = forEach (platform: {
        recommend = derivation {
          name = "recommend";
          system = platform;
          builder = (pythonOf platform).interpreter;
          args = [
            "-c" ''
              import os, subprocess, sys
              answer = subprocess.run([sys.executable, *sys.argv[1:]], check=True, capture_output=True)
              open(os.environ["out"], "wb").write(answer.stdout)
            ''
            "${programOf platform}/bin/torch-for-me"
            "--machine" "${self}/tests/machines/dgx-spark.json"
          ];
        };
      });
    };
}
