/* npm run bench:webhooks: measures how many webhooks are taken, and what bad ones cost.
 * `npm run bench:webhooks -- --help` lists its flags. */
import { build, install, runCompiled } from './setup.mjs';

install();
build();
runCompiled('bench/webhooks.js');
