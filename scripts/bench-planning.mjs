/* npm run bench:planning: measures the CPU time of planning one volume.
 * `npm run bench:planning -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/planning.js');
