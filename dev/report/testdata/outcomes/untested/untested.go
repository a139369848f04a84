package untested
