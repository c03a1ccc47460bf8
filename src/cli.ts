#!/usr/bin/env node
import { dispatch } from './dispatch.ts';
import { processes } from './processes.ts';

// A signal ends a container's first process only if the process handles it. The code loaded below
// does, but only once it is loaded; before that the kubelet would wait, and then kill.
process.on('SIGTERM', () => {
  if (process.listenerCount('SIGTERM') === 1) process.exit(143);
});
process.exitCode = await dispatch(process, processes);
