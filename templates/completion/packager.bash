# Completion of packager for bash; `packager completion bash` prints it.

_packager() {
    local answer
    COMPREPLY=()
    while IFS= read -r answer; do
        COMPREPLY+=("$answer")
    done < <(_PACKAGER_COMPLETE=bash "${1/#\~/$HOME}" "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
}

complete -o nospace -o nosort -F _packager packager 2>/dev/null ||
    complete -o nospace -F _packager packager
