# stdenv.mkDerivation with the semantics of nixpkgs. It returns a real derivation, so that Nix
# refuses values that a builder cannot get, and a recipe has a .drv path. `source` is that from which
# the caller imports this nixpkgs. The platform of host and build is one: `system`.
{ lib, config, system, source }:
let
  inherit (lib) elem isFunction toList;

  standIn = import ./builder.nix;

  # Why nixpkgs refuses a package with these attributes, or null (check-meta.nix of nixpkgs).
  refusalOf =
    attrs:
    let
      meta = attrs.meta or { };
      unfree = lib.filter (license: !(license.free or true)) (toList (meta.license or [ ]));
      names = lib.concatStringsSep ", " (map (license: license.shortName) unfree);
      supported = meta.platforms or [ system ];
    in
    if unfree != [ ] && !config.allowUnfree then
      "has an unfree license (‘${names}’)"
    else if meta.broken or false && !config.allowBroken then
      "is marked as broken"
    else if !(elem system supported) && !config.allowUnsupportedSystem then
      "is not available on ${system}, only on ${toString supported}"
    else
      null;

  # A name in both `env` and the attributes is refused, not merged.
  checkedEnv =
    env: arguments:
    let
      overlapping = lib.attrNames (builtins.intersectAttrs env arguments);
    in
    lib.throwIf (overlapping != [ ]) (
      "The `env` attribute set cannot contain any attributes passed to derivation. "
      + "The following attributes are overlapping: ${toString overlapping}"
    ) env;

  mkDerivationSimple =
    overrideAttrs: attrs:
    let
      name = attrs.name or "${attrs.pname}-${attrs.version}";
      arguments =
        removeAttrs attrs [ "meta" "passthru" "env" ]
        # An input is represented by its dev output, which holds the headers.
        // lib.genAttrs
          [ "nativeBuildInputs" "buildInputs" "propagatedNativeBuildInputs" "propagatedBuildInputs" ]
          (kind: map lib.getDev (lib.flatten (attrs.${kind} or [ ])))
        // {
          inherit name system;
          inherit (standIn) builder args;
          outputs = attrs.outputs or [ "out" ];
          __ignoreNulls = true;
        };
      env = checkedEnv (attrs.env or { }) arguments;
      exported = if attrs.__structuredAttrs or false then { inherit env; } else env;
      reason = refusalOf attrs;
      refusal = "Package ‘${name}’ ${toString reason}, refusing to evaluate.";
      passthru = attrs.passthru or { };
    in
    lib.extendDerivation (reason == null || throw refusal) (
      {
        inherit passthru overrideAttrs;
        meta = { inherit name; broken = false; } // attrs.meta or { } // { available = reason == null; };
        # Not in nixpkgs: a value for facts.nix.
        model = { inherit source; };
      }
      // passthru
    ) (derivation (arguments // exported));

  makeDerivationExtensible =
    rattrs:
    let
      args = rattrs (args // { inherit finalPackage overrideAttrs; });
      finalPackage = mkDerivationSimple overrideAttrs args;
      overrideAttrs =
        change:
        makeDerivationExtensible (
          final: let prev = rattrs final; in prev // lib.toExtension change final prev
        );
    in
    finalPackage;
in
attrsOrFunction:
makeDerivationExtensible (if isFunction attrsOrFunction then attrsOrFunction else _: attrsOrFunction)
