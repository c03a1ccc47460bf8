#!/usr/bin/env node
import { dispatch } from '#src/dispatch.ts';
import { processes } from './processes.ts';

process.exitCode = await dispatch(process, processes);
