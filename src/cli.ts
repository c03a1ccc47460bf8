#!/usr/bin/env node
import { setFlagsFromString } from 'node:v8';
import { dispatch } from './dispatch.ts';
import { processes } from './processes.ts';

// V8 then collects garbage before its heap grows. With 300 claims at once the heap takes half of
// the memory and as much CPU; with 2,000 it takes 52 MB in place of 131, and each claim half as
// much CPU again. Versions of Node before 24 print an error about this flag.
if (Number.parseInt(process.versions.node, 10) >= 24) setFlagsFromString('--memory-saver-mode');
// A signal ends a container's first process only if the process handles it. The code loaded below
// does, but only once it is loaded; before that the kubelet would wait, and then kill.
process.on('SIGTERM', () => {
  if (process.listenerCount('SIGTERM') === 1) process.exit(143);
});
process.exitCode = await dispatch(process, processes);
