/* npm run bench:watch: measures the memory and speed of ingest beside many bound claims.
 * `npm run bench:watch -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/watch.js');
