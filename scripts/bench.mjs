/* npm run bench: runs the compiled bench; `npm run bench -- --help` lists its flags. */
import { build, findRedis, install, runCompiled } from './setup.mjs';

install();
build();
findRedis();
runCompiled('bench/main.js');
