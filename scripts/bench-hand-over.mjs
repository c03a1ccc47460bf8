/* npm run bench:hand-over: measures how soon sutler stops and starts calling the driver as the
 * Lease changes hands. `npm run bench:hand-over -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/hand-over.js');
