module hisparse.dev/devcluster/pause

go 1.22
