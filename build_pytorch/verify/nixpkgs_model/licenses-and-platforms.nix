# The values that `meta` of a package uses: lib.licenses, lib.platforms, lib.maintainers.
let
  license = shortName: fullName: {
    inherit shortName fullName;
    free = true;
  };

  linux = [
    "aarch64-linux"
    "armv7l-linux"
    "i686-linux"
    "powerpc64le-linux"
    "riscv64-linux"
    "x86_64-linux"
  ];
  darwin = [
    "aarch64-darwin"
    "x86_64-darwin"
  ];
in
{
  licenses = {
    asl20 = license "asl20" "Apache License 2.0";
    bsd2 = license "bsd2" "BSD 2-clause \"Simplified\" License";
    bsd3 = license "bsd3" "BSD 3-clause \"New\" or \"Revised\" License";
    free = license "free" "Unspecified free software license";
    gpl3Plus = license "gpl3Plus" "GNU General Public License v3.0 or later";
    mit = license "mit" "MIT License";
    nvidiaCudaRedist = license "CUDA EULA" "CUDA Toolkit End User License Agreement (EULA)" // {
      free = false;
    };
    unfree = license "unfree" "Unfree" // {
      free = false;
    };
    unfreeRedistributable = license "unfreeRedistributable" "Unfree redistributable" // {
      free = false;
    };
  };

  platforms = {
    inherit linux darwin;
    unix = linux ++ darwin;
    all = linux ++ darwin;
    none = [ ];
    aarch64 = builtins.filter (system: builtins.match "aarch64-.*" system != null) (linux ++ darwin);
    x86_64 = builtins.filter (system: builtins.match "x86_64-.*" system != null) (linux ++ darwin);
  };

  maintainers = { };
  teams = { };
}
