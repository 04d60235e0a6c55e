import 'katex/dist/katex.css';
import './base.css';
import './chat.css';
import './live.css';
import './code.css';
import { render } from 'preact';
import { App } from './app';

const place = document.getElementById('app');
if (place) render(<App />, place);
