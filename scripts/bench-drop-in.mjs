/* npm run bench:drop-in: sutler and external-provisioner in turn beside one driver, with the same
 * arguments. `npm run bench:drop-in -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/drop-in.js');
