# stdenv.mkDerivation with the semantics of nixpkgs. It returns a real derivation, so that Nix
# refuses values that a builder cannot get, and a recipe has a .drv path.
{
  lib,
  config,
  # The platform of the host and of the build; the model has no cross compilation.
  system,
  # The source from which the caller imports this nixpkgs.
  source,
}:
let
  inherit (lib) elem isFunction toList;

  standIn = import ./builder.nix;

  # Why nixpkgs refuses a package with these attributes, or null (check-meta.nix of nixpkgs).
  refusalOf =
    attrs:
    let
      meta = attrs.meta or { };
      unfree = builtins.filter (license: !(license.free or true)) (toList (meta.license or [ ]));
      supported = meta.platforms or [ system ];
    in
    if unfree != [ ] && !config.allowUnfree then
      "has an unfree license (‘${lib.concatMapStringsSep ", " (license: license.shortName) unfree}’)"
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
      overlapping = builtins.attrNames (builtins.intersectAttrs env arguments);
    in
    lib.throwIf (overlapping != [ ]) (
      "The `env` attribute set cannot contain any attributes passed to derivation. "
      + "The following attributes are overlapping: ${toString overlapping}"
    ) env;

  # An input is represented by its dev output, which holds the headers.
  dependencyKinds = [
    "nativeBuildInputs" "buildInputs" "propagatedNativeBuildInputs" "propagatedBuildInputs"
  ];

  mkDerivationSimple =
    overrideAttrs: attrs:
    let
      name = lib.sanitizeDerivationName (attrs.name or "${attrs.pname}-${attrs.version}");
      dependencies = lib.genAttrs dependencyKinds (
        kind: map lib.getDev (lib.flatten (attrs.${kind} or [ ]))
      );
      arguments =
        removeAttrs attrs [ "meta" "passthru" "env" ]
        // dependencies
        // {
          inherit name system;
          inherit (standIn) builder args;
          outputs = attrs.outputs or [ "out" ];
          __ignoreNulls = true;
        };
      env = checkedEnv (attrs.env or { }) arguments;
      exported = if attrs.__structuredAttrs or false then { inherit env; } else env;
      passthru = attrs.passthru or { };
      meta = { inherit name; broken = false; } // attrs.meta or { } // { available = refusal == null; };

      reason = refusalOf attrs;
      refusal = if reason == null then null else "Package ‘${name}’ ${reason}, refusing to evaluate.";
    in
    lib.extendDerivation (refusal == null || throw refusal) (
      {
        inherit meta passthru overrideAttrs;
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
          final:
          let
            prev = rattrs final;
            changed = lib.toExtension change final prev;
            # Nix would build the source of the old hash under the name of the new version.
            staleSource =
              changed ? version
              && prev ? version
              && !(changed ? src)
              && !(changed.__intentionallyOverridingVersion or false);
          in
          lib.warnIf staleSource (
            "${prev.pname or prev.name} was overridden with `version` but not `src`. "
            + "This is most likely not what you want."
          ) (prev // removeAttrs changed [ "__intentionallyOverridingVersion" ])
        );
    in
    finalPackage;
in
attrsOrFunction:
makeDerivationExtensible (if isFunction attrsOrFunction then attrsOrFunction else _: attrsOrFunction)
