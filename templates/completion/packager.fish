# Completion of packager for fish; `packager completion fish` prints it.

function __packager_complete
    set -l words (commandline --cut-at-cursor --current-process --tokenize)
    set -l program (string replace --regex '^~' $HOME -- $words[1])
    set -lx _PACKAGER_COMPLETE fish
    command $program $words[2..-1] (commandline --cut-at-cursor --current-token) 2>/dev/null
end

complete --command packager --no-files --arguments '(__packager_complete)'
