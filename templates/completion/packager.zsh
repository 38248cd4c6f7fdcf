#compdef packager
# Completion of packager for zsh; `packager completion zsh` prints it.

_packager() {
    local mark text told
    local -a whole whole_told part part_told
    while IFS=$'\t' read -r mark text told; do
        [[ -n $told ]] && told="${text}  -- ${told}" || told=$text
        if [[ $mark == + ]]; then
            whole+=("$text") whole_told+=("$told")
        else
            part+=("$text") part_told+=("$told")
        fi
    done < <(_PACKAGER_COMPLETE=zsh "${${(Q)words[1]}/#\~/$HOME}" "${(@)words[2,CURRENT-1]}" "${PREFIX}" 2>/dev/null)
    local -a found
    (( $#whole )) && compadd -Q -l -V packager -d whole_told -a whole && found=1
    (( $#part )) && compadd -Q -S '' -l -V packager-part -d part_told -a part && found=1
    (( $#found ))
}

if [[ $funcstack[1] == _packager ]]; then
    _packager "$@"
else
    (( $+functions[compdef] )) && compdef _packager packager
fi
