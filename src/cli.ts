#!/usr/bin/env node
import { dispatch } from './dispatch.ts';
import { processes } from './processes.ts';

// A container's first process is not ended by a signal that it does not handle, and it takes a
// moment until the process that is loaded here handles it: the kubelet would wait and then kill.
process.on('SIGTERM', () => {
  if (process.listenerCount('SIGTERM') === 1) process.exit(143);
});
process.exitCode = await dispatch(process, processes);
