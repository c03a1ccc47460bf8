/* npm run chaos: runs the compiled chaos command; `npm run chaos -- --help` lists its flags. */
import { build, findRedis, install, runCompiled } from './setup.mjs';

install();
build();
findRedis();
runCompiled('chaos/main.js');
