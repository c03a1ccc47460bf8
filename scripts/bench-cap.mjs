/* npm run bench:cap: compares workers that have more runs than the gateway lets by.
 * `npm run bench:cap -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/cap.js');
